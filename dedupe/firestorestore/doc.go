// Package firestorestore is a [dedupe.Store] in a Firestore collection.
package firestorestore
