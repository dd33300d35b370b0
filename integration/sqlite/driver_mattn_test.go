//go:build mattn

package sqlite_test

import (
	"fmt"

	_ "github.com/mattn/go-sqlite3"
)

// driverName is the driver that the tests use.
const driverName = "sqlite3"

// unsynced is the part of a data source name that waits for no disk.
const unsynced = "_synchronous=OFF"

// busy is the part of a data source name that sets the busy timeout.
func busy(milliseconds int) string { return fmt.Sprintf("_busy_timeout=%d", milliseconds) }
