// The paths of testbed::http2, by net/http: DIRECTORY PORT STREAMS WINDOW TABLE, the last three 0 for the defaults.
package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

const largeBytes = 300_000

func main() {
	directory, port := os.Args[1], os.Args[2]
	number := func(argument int) int {
		value, err := strconv.Atoi(os.Args[argument])
		if err != nil {
			log.Fatal(err)
		}
		return value
	}
	ending := make(chan struct{})
	server := &http.Server{
		Addr:    "127.0.0.1:" + port,
		Handler: handler(ending),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:      number(3),
			MaxReceiveBufferPerStream: number(4),
			MaxDecoderHeaderTableSize: number(5),
			MaxEncoderHeaderTableSize: number(5),
		},
	}
	ended := make(chan struct{})
	go func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		<-signals
		// What is held is answered once connections were told to go.
		server.RegisterOnShutdown(func() { close(ending) })
		if err := server.Shutdown(context.Background()); err != nil {
			log.Print(err)
		}
		close(ended)
	}()
	err := server.ListenAndServeTLS(directory+"/certificate.pem", directory+"/key.pem")
	if err != http.ErrServerClosed {
		log.Fatal(err)
	}
	<-ended
}

func handler(ending <-chan struct{}) http.HandlerFunc {
	return func(answer http.ResponseWriter, request *http.Request) {
		path := request.URL.Path
		// One write, so lines are whole.
		os.Stdout.WriteString("request: " + path + "\n")
		fields := answer.Header()
		fields.Set("x-path", path)
		for _, name := range []string{"x-number", "x-token"} {
			if values, isThere := request.Header[http.CanonicalHeaderKey(name)]; isThere {
				fields.Set(name, values[0])
			}
		}
		if strings.HasPrefix(path, "/early/") {
			return
		}
		hash := fnv.New32a()
		length, err := io.Copy(hash, request.Body)
		if err != nil {
			return
		}
		fields.Set("x-length", strconv.FormatInt(length, 10))
		fields.Set("x-hash", fmt.Sprintf("%08x", hash.Sum32()))
		switch {
		case strings.HasPrefix(path, "/held/"):
			select {
			case <-ending:
			case <-request.Context().Done():
			}
		case strings.HasPrefix(path, "/large/"):
			answer.WriteHeader(400)
			answer.Write(bytes.Repeat([]byte("large "), largeBytes/6))
		case strings.HasPrefix(path, "/trailers/"):
			fields.Set("link", "</style.css>; rel=preload")
			answer.WriteHeader(103)
			answer.WriteHeader(103)
			fields.Del("link")
			fields.Set("trailer", "x-end")
			answer.WriteHeader(400)
			io.WriteString(answer, path)
			fields.Set("x-end", "yes")
		}
	}
}
