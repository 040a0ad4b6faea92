package controlstore

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// wireJob is a job in the form of a card: an array, because names would take half of the room.
// Later versions add elements at its end.
type wireJob struct {
	Key, ID string
	Nth     int // its type is this one of the card's, from 1
	Type    string
	Ago     time.Duration
	Attempt int
	Fence   uint64
	Overdue bool
}

// MarshalJSON writes the key, the id, the type or its number, since how many seconds it runs, the
// attempt, the fence to the base of 36, and 1 where it is overdue.
func (j wireJob) MarshalJSON() ([]byte, error) {
	row := []any{pack(j.Key), pack(j.ID), j.Nth, int64(j.Ago / time.Second), j.Attempt, strconv.FormatUint(j.Fence, 36)}
	if j.Nth == 0 {
		row[2] = j.Type
	}
	if j.Overdue {
		row = append(row, 1)
	}
	return json.Marshal(row)
}

// UnmarshalJSON reads what it knows of an array.
func (j *wireJob) UnmarshalJSON(b []byte) error {
	var row []any
	if err := json.Unmarshal(b, &row); err != nil {
		return err
	}
	at := func(i int) any {
		if i < len(row) {
			return row[i]
		}
		return nil
	}
	text := func(i int) string { s, _ := at(i).(string); return s }
	number := func(i int) float64 { n, _ := at(i).(float64); return n }
	*j = wireJob{Key: unpack(text(0)), ID: unpack(text(1)), Type: text(2), Attempt: int(number(4)), Overdue: number(6) == 1}
	j.Nth, j.Ago = int(number(2)), time.Duration(number(3))*time.Second
	j.Fence, _ = strconv.ParseUint(text(5), 36, 64)
	return nil
}

// packed marks a UUID in a card. A text that begins with the mark has it twice.
const packed = "~"

// pack makes 22 characters of a UUID's 36.
func pack(s string) string {
	if raw, err := hex.DecodeString(strings.ReplaceAll(s, "-", "")); err == nil && s != "" && uuid(raw) == s {
		return packed + base64.RawURLEncoding.EncodeToString(raw)
	}
	if strings.HasPrefix(s, packed) {
		return packed + s
	}
	return s
}

func unpack(s string) string {
	rest, ok := strings.CutPrefix(s, packed)
	if !ok || strings.HasPrefix(rest, packed) {
		return rest
	}
	raw, err := base64.RawURLEncoding.DecodeString(rest)
	if id := uuid(raw); err == nil && id != "" {
		return id
	}
	return s
}

// uuid writes 16 bytes in the way of UUIDs; empty where they are not as many.
func uuid(b []byte) string {
	if len(b) != 16 {
		return ""
	}
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
