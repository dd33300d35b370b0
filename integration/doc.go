// Package integration tests the library together with what its users bring: SQLite
// and PostgreSQL drivers, GORM, processes that die. It is a module of its own, so that
// none of these reach the go.sum of whoever imports the library.
package integration
