package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	_ "modernc.org/sqlite" // the driver of the file

	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
)

// This file tries a release's binary as its first user would. The rehearsal and -binaries call it,
// in one goroutine, so nothing is locked.

// queueFile is a queue with two jobs, which the release's workflow also shows to the binaries of
// other systems.
const queueFile = "orders.db"

// fill makes the queue orders in a file of the folder.
func fill(ctx context.Context, dir string) (err error) {
	name := filepath.Join(dir, queueFile)
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return err
	}
	queue, err := sqlitebroker.New(store, "orders", nil)
	if err != nil {
		return err
	}
	if err := errors.Join(store.Migrate(ctx), queue.Migrate(ctx)); err != nil {
		return err
	}
	_, err = queue.Send(ctx, []broker.Outgoing{{Body: []byte("A-1")}, {Body: []byte("B-2")}})
	return err
}

// smoke asks a binary for its version, and for what waits in the file of the folder.
func smoke(ctx context.Context, program, version, dir string) error {
	said, err := run(ctx, dir, nil, program, "version")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(said, "onceq "+version) {
		return fmt.Errorf("%s says %q, and is %s", program, said, version)
	}
	said, err = run(ctx, dir, nil, program, "queue", "ls", "-o", "json", "sqlite-queue:///./"+queueFile+"/orders")
	if err != nil {
		return err
	}
	if !strings.Contains(strings.Join(strings.Fields(said), ""), `"visible":2`) {
		return fmt.Errorf("%s tells of two jobs: %s", program, said)
	}
	return nil
}

// try packs the command for this system twice, each time from nothing, and uses it.
func try(ctx context.Context, root, library, version, dir string, env []string) error {
	here := []target{{runtime.GOOS, runtime.GOARCH}}
	var packed [2][]byte
	var name string
	for i := range packed {
		at := filepath.Join(dir, fmt.Sprint("packed-", i))
		// What was compiled before is not used, or the second would be the first.
		own := append(env, "GOCACHE="+filepath.Join(dir, fmt.Sprint("compiled-", i)))
		if err := binaries(ctx, root, library, version, at, own, here); err != nil {
			return err
		}
		names, err := filepath.Glob(filepath.Join(at, "onceq_*"))
		if err != nil || len(names) != 1 {
			return fmt.Errorf("there are %q: %w", names, err)
		}
		name = names[0]
		if packed[i], err = os.ReadFile(name); err != nil {
			return err
		}
	}
	if !bytes.Equal(packed[0], packed[1]) {
		return errors.New("the archives of two builds differ")
	}
	program, err := unpack(name, dir)
	if err != nil {
		return err
	}
	if err := fill(ctx, dir); err != nil {
		return err
	}
	if err := smoke(ctx, program, version, dir); err != nil {
		return err
	}
	fmt.Println("the command is the same in two builds, and it runs")
	return nil
}
