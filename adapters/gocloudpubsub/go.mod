module github.com/onceq/onceq/adapters/gocloudpubsub

go 1.26.0

replace github.com/onceq/onceq => ../..
