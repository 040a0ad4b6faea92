package testgcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// notFound is gRPC's code for what is not there.
const notFound = 5

// A statusError is what a server answered instead of success.
type statusError struct {
	code         int
	method, text string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: gRPC status %d: %s", e.method, e.code, e.text)
}

// longestAnswer bounds what is read of a server.
const longestAnswer = 16 << 20

// call makes one gRPC call without TLS: name is the first field of the request. Of all requests
// that this package makes, that is the only one.
func call(ctx context.Context, addr, method, name string) ([]byte, error) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{Protocols: &protocols} // no proxy
	defer t.CloseIdleConnections()
	const firstFieldOfBytes = 1<<3 | 2
	message := binary.AppendUvarint([]byte{firstFieldOfBytes}, uint64(len(name)))
	message = append(message, name...)
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/"+method, bytes.NewReader(append(frame, message...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	// Firestore's emulator takes it for an administrator's, as of Google's own clients
	req.Header.Set("Authorization", "Bearer owner")
	res, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, longestAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	// a server that has nothing else to say puts the status where headers are
	status := cmp.Or(res.Trailer.Get("Grpc-Status"), res.Header.Get("Grpc-Status"))
	code, err := strconv.Atoi(status)
	if err != nil {
		return nil, fmt.Errorf("%s: no gRPC status in the answer %s", method, res.Status)
	}
	if code != 0 {
		text := cmp.Or(res.Trailer.Get("Grpc-Message"), res.Header.Get("Grpc-Message"))
		if plain, err := url.PathUnescape(text); err == nil {
			text = plain
		}
		return nil, &statusError{code, method, text}
	}
	if len(answer) < 5 || answer[0] != 0 || uint64(binary.BigEndian.Uint32(answer[1:])) != uint64(len(answer)-5) {
		return nil, fmt.Errorf("%s: the answer is not one plain message", method)
	}
	return answer[5:], nil
}

// firstFields returns the first field, a string, of each message that is the first field of the
// list: names, as all of Pub/Sub's lists have them.
func firstFields(list []byte) (names []string, err error) {
	err = fields(list, func(n uint64, message []byte) error {
		if n != 1 {
			return nil
		}
		return fields(message, func(n uint64, value []byte) error {
			if n == 1 {
				names = append(names, string(value))
			}
			return nil
		})
	})
	return names, err
}

var errTorn = errors.New("a message in protocol buffers is torn")

// fields calls each for the fields of a message that have a length: strings, bytes and messages.
func fields(message []byte, each func(number uint64, value []byte) error) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return errTorn
		}
		message = message[n:]
		size := uint64(0)
		switch tag & 7 {
		case 0, 2:
			if size, n = binary.Uvarint(message); n <= 0 {
				return errTorn
			}
			message = message[n:]
			if tag&7 == 0 {
				continue
			}
		case 1:
			size = 8
		case 5:
			size = 4
		default:
			return errTorn
		}
		if size > uint64(len(message)) {
			return errTorn
		}
		if tag&7 == 2 {
			if err := each(tag>>3, message[:size]); err != nil {
				return err
			}
		}
		message = message[size:]
	}
	return nil
}
