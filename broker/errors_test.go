package broker

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// sdkError stands for an error of a service's own package.
type sdkError struct{ code string }

func (e *sdkError) Error() string { return e.code }

func TestErrAt(t *testing.T) {
	whole := errors.New("connection reset")
	partial := &BatchError{Errs: []error{nil, ErrTooLarge}}
	for _, c := range []struct {
		name string
		err  error
		i    int
		want error
	}{
		{"no error", nil, 0, nil},
		{"an error without positions", whole, 3, whole},
		{"an applied entry", partial, 0, nil},
		{"a failed entry", partial, 1, ErrTooLarge},
		{"a wrapped answer, applied", fmt.Errorf("send: %w", partial), 0, nil},
		{"a wrapped answer, failed", fmt.Errorf("send: %w", partial), 1, ErrTooLarge},
	} {
		if got := ErrAt(c.err, c.i); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	// What was answered for another entry must not be found in it.
	for _, err := range []error{partial, fmt.Errorf("send: %w", partial)} {
		if got := ErrAt(err, 2); got == nil || errors.Is(got, ErrTooLarge) {
			t.Errorf("beyond the answer: got %v, want an error that is not ErrTooLarge", got)
		}
	}
}

func TestBatch(t *testing.T) {
	for _, errs := range [][]error{nil, {}, {nil}, {nil, nil}} {
		if err := JoinEntries(errs); err != nil {
			t.Errorf("JoinEntries(%v) = %v, want nil", errs, err)
		}
	}
	err := JoinEntries([]error{nil, ErrThrottled})
	var b *BatchError
	if !errors.As(err, &b) || len(b.Errs) != 2 || b.Errs[0] != nil || b.Errs[1] != ErrThrottled {
		t.Errorf("got %#v", err)
	}
}

func TestBatchErrorUnwraps(t *testing.T) {
	own := &sdkError{"ReceiptHandleIsInvalid"}
	err := fmt.Errorf("ack: %w", JoinEntries([]error{nil, fmt.Errorf("%w: %w", ErrReceiptExpired, own), ErrThrottled}))
	for _, want := range []error{ErrReceiptExpired, ErrThrottled} {
		if !errors.Is(err, want) {
			t.Errorf("errors.Is does not find %v", want)
		}
	}
	if errors.Is(err, ErrClosed) {
		t.Error("errors.Is finds what is not there")
	}
	var got *sdkError
	if !errors.As(err, &got) || got != own {
		t.Errorf("errors.As gives %v, want the service's own error", got)
	}
}

func TestBatchErrorText(t *testing.T) {
	for _, c := range []struct {
		errs []error
		want string
	}{
		{[]error{nil, ErrTooLarge, ErrThrottled}, "broker: 2 of 3 entries failed; entry 1: broker: message too large"},
		{[]error{nil}, "broker: batch error without a failed entry"},
		{nil, "broker: batch error without a failed entry"},
	} {
		if got := (&BatchError{Errs: c.errs}).Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestReceiptIsShortenedInLogs(t *testing.T) {
	for _, c := range []struct {
		r    Receipt
		want string
	}{
		{"", ""},
		{"1", "…"},
		{"12345678", "1234…"},
		{"1234567890123456", "12345678…"},
		{"ééé", "é…"},
		{"123456789-a-secret", "12345678…"},
	} {
		if got := c.r.LogValue().String(); got != c.want {
			t.Errorf("%q: got %q, want %q", string(c.r), got, c.want)
		}
	}
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("acked", "receipt", Receipt("123456789-a-secret"))
	if s := out.String(); strings.Contains(s, "secret") || !strings.Contains(s, "12345678…") {
		t.Errorf("logged %q", s)
	}
}
