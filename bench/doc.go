// Package bench compares the library with its peers, both sides in one run on one
// machine and one PostgreSQL. It is a module of its own, so that the peers do not
// reach the go.sum of whoever imports the library.
package bench
