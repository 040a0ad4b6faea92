module github.com/onceq/onceq

go 1.26
