// Package guides is the code that docs shows: a guide's code block that follows the
// comment <!-- code: FILE REGION --> is the part of FILE between the lines
// "// region: REGION" and "// end region", and a test compares them. The functions are
// run by the tests.
package guides
