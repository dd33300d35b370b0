// Package examples holds runnable examples, one per directory. It is a module of its
// own, so that their drivers do not reach the go.sum of whoever imports the library.
package examples
