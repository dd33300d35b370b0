// Package gorm shows the library in a service that uses GORM on PostgreSQL.
package gorm
