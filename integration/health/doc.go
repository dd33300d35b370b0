// Package health tests, on PostgreSQL, SQLite and in memory, what becomes of endpoints
// that fail: what is shown of them, when they are disabled, and who is told.
package health
