package main

import "github.com/siderolabs/talos/pkg/machinery/config/encoder"

// withoutComments is how every judge encodes: comments differ between releases and mean nothing.
var withoutComments = encoder.WithComments(encoder.CommentsDisabled)
