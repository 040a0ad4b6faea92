// Package api holds the public surface of each package as a file of text in the folder api, and a
// test that fails where the code says something else.
//
// A change of the surface then shows in a review as lines added to or taken from api/*.txt. The
// lines are sorted and have no comments, so moving or documenting a declaration changes none. They
// name no parameters, because renaming one breaks nobody.
package api
