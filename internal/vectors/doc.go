// Package vectors holds the files in docs/vectors to what the code does: what the metadata looks
// like as it travels, what each call makes of each record, how the history is kept, and how a
// letter is signed. A program in another language reads the files to test its own code. Its tests
// write them (-update). A vector may be added, and none may change, because messages and records
// outlive programs.
package vectors
