// The receiver of the OpenTelemetry Collector by itself: it takes traces by OTLP over HTTP at the address that is its argument, and writes
// each request as a line of JSON (the encoding of OTLP) to standard output, until it is ended by SIGTERM.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func main() {
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	settings := map[string]any{"protocols": map[string]any{"http": map[string]any{"endpoint": os.Args[1]}}}
	if err := confmap.NewFromStringMap(settings).Unmarshal(config); err != nil {
		log.Fatal(err)
	}
	var lock sync.Mutex
	write := func(_ context.Context, traces ptrace.Traces) error {
		line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
		if err != nil {
			return err
		}
		lock.Lock()
		defer lock.Unlock()
		_, err = os.Stdout.Write(append(line, '\n'))
		return err
	}
	next, err := consumer.NewTraces(write)
	if err != nil {
		log.Fatal(err)
	}
	receiver, err := factory.CreateTraces(context.Background(), receivertest.NewNopSettings(factory.Type()), config, next)
	if err != nil {
		log.Fatal(err)
	}
	if err := receiver.Start(context.Background(), componenttest.NewNopHost()); err != nil {
		log.Fatal(err)
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	<-stop.Done()
	if err := receiver.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
}
