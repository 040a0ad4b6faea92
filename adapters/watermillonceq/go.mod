module github.com/onceq/onceq/adapters/watermillonceq

go 1.26.0

replace github.com/onceq/onceq => ../..
