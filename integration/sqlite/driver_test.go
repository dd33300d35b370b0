//go:build !mattn

package sqlite_test

import (
	"fmt"

	_ "modernc.org/sqlite"
)

// driverName is the driver that the tests use; with the build tag mattn it is the
// other one.
const driverName = "sqlite"

// unsynced is the part of a data source name that waits for no disk.
const unsynced = "_pragma=synchronous(OFF)"

// busy is the part of a data source name that sets the busy timeout.
func busy(milliseconds int) string { return fmt.Sprintf("_pragma=busy_timeout(%d)", milliseconds) }
