//go:build unix && !linux

package pgtest

// memoryDir finds none: only Linux has one that is always mounted.
func memoryDir() (dir string, ok bool) { return "", false }
