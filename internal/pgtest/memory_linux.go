package pgtest

import "syscall"

// memoryRoom is the free space that makes the memory file system worth using. The
// 64 MiB that containers get by default would fill up in the middle of a test.
const memoryRoom = 2 << 30

// memoryDir returns the directory of Linux's memory file system if it has room.
// Creating a database writes some 300 small files, which takes 15 ms there and up to
// 300 ms on a disk's file system, even without fsync.
func memoryDir() (dir string, ok bool) {
	const shm = "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil {
		return "", false
	}
	return shm, fs.Bavail*uint64(fs.Bsize) >= memoryRoom
}
