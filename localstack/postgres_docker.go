package localstack

import (
	"context"
	"crypto/rand"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
)

const (
	// postgresImageEnv names the image to run.
	postgresImageEnv = "ONCEQ_POSTGRES_IMAGE"
	postgresImage    = "postgres:17-alpine"
)

// runPostgres runs the official image.
func runPostgres(ctx context.Context, s *site) (string, error) {
	p, err := docker(ctx)
	if err != nil {
		return "", err
	}
	name, err := image(ctx, p, postgresImageEnv, "postgres", postgresImage)
	if err != nil {
		return "", err
	}
	const data = "/onceq"
	password := rand.Text()
	req := testcontainers.ContainerRequest{
		Image: name,
		Env: map[string]string{
			"POSTGRES_PASSWORD": password, "PGDATA": data,
			// below 14 its own way is md5
			"POSTGRES_HOST_AUTH_METHOD": "scram-sha-256", "POSTGRES_INITDB_ARGS": "--auth-host=scram-sha-256",
		},
		Cmd: []string{"postgres"},
		HostConfigModifier: func(h *container.HostConfig) {
			if s.variant != durable {
				h.Tmpfs = map[string]string{data: "rw"}
			}
		},
	}
	for _, set := range postgresSettings(s.variant) {
		req.Cmd = append(req.Cmd, "-c", set)
	}
	hosts, err := s.container(ctx, p, req, "5432")
	if err != nil {
		return "", err
	}
	var addrs []string
	for _, host := range hosts {
		addrs = append(addrs, postgresURL(password, host))
	}
	return answering(ctx, addrs, time.Minute)
}

// postgresURL is the address of a server of ours. One that does not prove that it knows the
// password is none.
func postgresURL(password, host string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", password),
		Host: host, Path: "/postgres", RawQuery: "sslmode=disable&require_auth=scram-sha-256",
	}
	return u.String()
}

// postgresSettings are a test server's, wherever it runs.
func postgresSettings(variant string) []string {
	settings := []string{
		"max_connections=300", "max_prepared_transactions=20", "jit=off", "max_wal_size=128MB", "min_wal_size=32MB",
		// nothing outside the data directory that a killed server could leave behind
		"dynamic_shared_memory_type=mmap",
	}
	if variant != durable {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	return settings
}

// answering waits for the first of the addresses where a server answers.
func answering(ctx context.Context, addrs []string, limit time.Duration) (string, error) {
	return firstOf(ctx, addrs, limit, func(ctx context.Context, addr string) error {
		conn, err := pgx.Connect(ctx, addr)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
}
