//go:build !linux

package main

// remoteFileSystem knows the file systems of Linux alone.
func remoteFileSystem(string) (name string, remote bool) { return "", false }
