// Package admin holds the tests of the admin handlers on real databases.
package admin
