package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSettings(t *testing.T) {
	good := map[string]string{
		"QUEUE_URL": "https://sqs.eu-central-1.amazonaws.com/1/orders", "DEAD_LETTER_QUEUE_URL": "https://sqs.eu-central-1.amazonaws.com/1/dead",
		"AWS_REGION": "eu-central-1",
		"BANK_URL":   "https://bank.example.com", "DATABASE_URL": "postgres://db",
	}
	with := func(changes map[string]string) func(string) string {
		return func(name string) string {
			if v, ok := changes[name]; ok {
				return v
			}
			return good[name]
		}
	}
	s, err := fromEnvironment(with(nil))
	require.NoError(t, err)
	require.Equal(t, 23*time.Second, s.drainTimeout(), "30 s without the settling and the margin")

	for endpoint, any := range map[string]bool{
		"": false, "https://vpce-1.sqs.eu-central-1.vpce.amazonaws.com": false, "https://10.0.0.7": false, "https://localhost.example.com": false,
		"http://localstack:4566": true, "https://localhost:4566": true, "https://127.0.0.1:4566": true, "https://[::1]:4566": true,
	} {
		s, err := fromEnvironment(with(map[string]string{"AWS_ENDPOINT_URL_SQS": endpoint}))
		require.NoError(t, err)
		require.Equal(t, any, s.anyKeys, endpoint)
		s, err = fromEnvironment(with(map[string]string{"AWS_ENDPOINT_URL_SQS": endpoint, "AWS_ACCESS_KEY_ID": "k"}))
		require.NoError(t, err)
		require.False(t, s.anyKeys, endpoint)
	}

	for _, c := range []struct {
		changes map[string]string
		want    []string
	}{
		{map[string]string{"BANK_URL": "", "AWS_REGION": ""}, []string{"BANK_URL is not set", "AWS_REGION is not set"}},
		{map[string]string{"DEAD_LETTER_QUEUE_URL": ""}, []string{"DEAD_LETTER_QUEUE_URL is not set"}},
		{map[string]string{"BANK_URL": "bank"}, []string{`BANK_URL is "bank"; it is of the form`}},
		{map[string]string{"DATABASE_URL": ""}, []string{"DATABASE_URL or DATABASE_FILE is needed, because there is no SUBSCRIPTION"}},
		{map[string]string{"DATABASE_FILE": "x"}, []string{"DATABASE_URL or DATABASE_FILE is needed, and not both"}},
		{map[string]string{"CONCURRENCY": "0"}, []string{`CONCURRENCY is "0"; it is a number within 1 and 1000`}},
		{map[string]string{"ADMIN_ADDR": ":8081"}, []string{`ADMIN_ADDR is ":8081"; it is a loopback address`}},
		{map[string]string{"ADMIN_ADDR": "0.0.0.0:8081"}, []string{"ADMIN_ADDR"}},
		{map[string]string{"STOP_GRACE": "30"}, []string{`STOP_GRACE is "30"; it is a duration within 1s and 24h0m0s, such as 30s`}},
		{map[string]string{"STOP_GRACE": "10s"}, []string{"STOP_GRACE is 10s; with a LONG_POLL of 8s it is 11s or more"}},
		{map[string]string{"STOP_GRACE": "7s", "LONG_POLL": "1s"}, []string{"it is 8s or more"}},
		{map[string]string{"SUBSCRIPTION": "projects/p/subscriptions/s"}, []string{"QUEUE_URL or SUBSCRIPTION is needed, and not both"}},
		{
			map[string]string{"QUEUE_URL": "", "SUBSCRIPTION": "projects/p/subscriptions/s", "BANK_URL": "", "AWS_REGION": ""},
			[]string{"DEAD_LETTER_TOPIC is not set, and SUBSCRIPTION is", "BANK_URL is not set, and SUBSCRIPTION is"},
		},
		{map[string]string{"LONG_POLL": "21s"}, []string{"LONG_POLL is \"21s\""}},
	} {
		_, err := fromEnvironment(with(c.changes))
		for _, want := range c.want {
			require.ErrorContains(t, err, want)
		}
	}
}

// A task's role, which its container finds under an address of its own.
func TestRole(t *testing.T) {
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"AccessKeyId": "of the role", "SecretAccessKey": "s", "Token": "t"}`)
	}))
	defer role.Close()
	for name, value := range map[string]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": role.URL, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_PROFILE": "",
	} {
		t.Setenv(name, value)
	}
	keyOf := func(s settings) string {
		c, err := newClient(t.Context(), s)
		require.NoError(t, err)
		keys, err := c.Options().Credentials.Retrieve(t.Context())
		require.NoError(t, err)
		return keys.AccessKeyID
	}
	require.Equal(t, "of the role", keyOf(settings{region: "eu-central-1"}))
	require.Equal(t, "test", keyOf(settings{region: "eu-central-1", anyKeys: true}))
	t.Setenv("AWS_ACCESS_KEY_ID", "of the environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	require.Equal(t, "of the environment", keyOf(settings{region: "eu-central-1"}))
}
