package etcdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// statusTimeout bounds one question to a member.
const statusTimeout = time.Second

// client has its own transport, so that no connection is left behind.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// memberStatus is what a member says about itself. Numbers of 64 bits are strings in etcd's JSON.
type memberStatus struct {
	Header struct {
		Member string `json:"member_id"`
	} `json:"header"`
	Version string `json:"version"`
	Leader  string `json:"leader"`
}

// status asks a member about itself, by etcd's gateway from JSON to gRPC.
func status(ctx context.Context, addr string) (s memberStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v3/maintenance/status",
		bytes.NewReader([]byte("{}")))
	if err != nil {
		return s, err
	}
	response, err := client.Do(request)
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return s, fmt.Errorf("etcd %s answers %s", addr, response.Status)
	}
	err = json.NewDecoder(response.Body).Decode(&s)
	return s, err
}
