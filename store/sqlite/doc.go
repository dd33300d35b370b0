// Package sqlite keeps webhooks in an SQLite database, through database/sql and
// whichever driver the host has opened it with: it imports none. SQLite 3.35 or
// later is needed.
//
// # How to open the database
//
// SQLite has one writer at a time, so a host and the library must wait for one
// another instead of failing. The library does its part: its own writes are
// short, begin immediate, and are repeated when the database is busy, and it
// keeps no transaction open between calls. The host does its part in the data
// source name, with a busy timeout, so that it waits for the library, and with
// transactions that begin immediate, since one that begins by reading and then
// writes cannot wait: SQLite refuses it at once.
//
//	modernc.org/sqlite    file:app.db?_pragma=busy_timeout(5000)&_txlock=immediate
//	mattn/go-sqlite3      file:app.db?_busy_timeout=5000&_txlock=immediate
//
// [Store.Migrate] turns on write-ahead logging, so that readers and the writer
// do not wait for one another, and refuses a database that was opened in another
// way with a [ConnectionError]; [Store.Check] says the same at any time.
//
// One machine only: SQLite's locks do not work on network file systems. Several
// processes of one machine may share a file.
//
// # One connection
//
// A pool limited to one connection (SetMaxOpenConns(1)) works, in memory too.
// The host must then not call the library while it holds that connection, except
// to enqueue through its transaction: the call would wait for the connection
// until its context ends. An in-memory database with several connections needs a
// shared cache, whose readers and writers do not wait for one another on every
// driver: that is for tests.
package sqlite
