package firestorestore

import (
	_ "github.com/googleapis/gax-go/v2"
	_ "google.golang.org/api/option"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
)
