// Package payload holds tests of payloads that are kept outside of the database.
package payload
