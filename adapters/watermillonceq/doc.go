// Package watermillonceq joins onceq and Watermill, both ways.
package watermillonceq
