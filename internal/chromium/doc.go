// Package chromium drives a headless Chromium from a test: it opens a page at a size, taps, types,
// waits for what must come to stand there, and tells what went wrong beside it.
//
// The program is what ONCEQ_CHROMIUM names, else one that is installed, a headless shell first.
// ONCEQ_BACKENDS=chromium makes a test fail where there is none; all leaves it out.
package chromium
