module github.com/outhook/webhook/examples

go 1.26.0

replace github.com/outhook/webhook => ..
