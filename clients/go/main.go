// Sends by Belfry, receives and verifies a signed callback, lists page by page, and cancels. The package belfry is generated:
//
//	go tool oapi-codegen -generate types,client -package belfry -o belfry/belfry.go docs/reference/openapi.json
//
// Environment: BELFRY_URL, BELFRY_API_KEY; WEBHOOK_SECRET, with which the channel "hooks" signs. The channel "ios" only has to be there.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/google/uuid"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"belfry.example/client/belfry"
)

const pending = 5

func main() {
	client, err := belfry.NewClientWithResponses(os.Getenv("BELFRY_URL"), belfry.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+os.Getenv("BELFRY_API_KEY"))
			return nil
		}))
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	receiveACallback(ctx, client)
	pageAndCancel(ctx, client)
	readAnError(ctx, client)
	fmt.Printf("{\"client\": \"go\", \"cancelled\": %d}\n", pending)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func create(ctx context.Context, client *belfry.ClientWithResponses, submission belfry.NotificationSubmission) belfry.NotificationCreated {
	var body belfry.CreateNotificationsJSONRequestBody
	must(body.FromNotificationSubmission(submission))
	answer, err := client.CreateNotificationsWithResponse(ctx, nil, body)
	must(err)
	if answer.JSON201 == nil {
		log.Fatalf("%s: %s", answer.Status(), answer.Body)
	}
	created, err := answer.JSON201.AsNotificationCreated()
	must(err)
	return created
}

// An endpoint of the application takes what is signed, and nothing else.
func receiveACallback(ctx context.Context, client *belfry.ClientWithResponses) {
	verifier, err := webhooks.NewWebhook(os.Getenv("WEBHOOK_SECRET"))
	must(err)
	received := make(chan [2]string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil || verifier.Verify(body, request.Header) != nil {
			writer.WriteHeader(http.StatusUnauthorized)
			return
		}
		// A repetition has the same identifier.
		received <- [2]string{request.Header.Get("webhook-id"), string(body)}
		writer.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	created := create(ctx, client, belfry.NotificationSubmission{
		Channel: "hooks", To: receiver.URL + "/orders", Content: map[string]int{"order": 17},
	})
	select {
	case callback := <-received:
		if callback != [2]string{created.Id.String(), `{"order":17}`} {
			log.Fatalf("another callback: %v", callback)
		}
	case <-ctx.Done():
		log.Fatal("no callback")
	}
}

func pageAndCancel(ctx context.Context, client *belfry.ClientWithResponses) {
	later := time.Now().Add(time.Hour)
	tags := []string{"go"}
	sent := map[string]bool{}
	for number := range pending {
		created := create(ctx, client, belfry.NotificationSubmission{
			Channel: "ios", To: fmt.Sprintf("%08x", number), Content: number, SendAt: &later, Tags: &tags,
		})
		sent[created.Id.String()] = true
	}
	limit, listed := 2, 0
	parameters := belfry.ListNotificationsParams{Tag: &tags[0], Limit: &limit}
	for {
		page, err := client.ListNotificationsWithResponse(ctx, &parameters)
		must(err)
		if page.JSON200 == nil {
			log.Fatalf("%s: %s", page.Status(), page.Body)
		}
		for _, item := range page.JSON200.Items {
			if !sent[item.Id.String()] {
				log.Fatalf("%s was not sent", item.Id)
			}
			listed++
			cancelTwice(ctx, client, item)
		}
		if page.JSON200.Next == nil {
			break
		}
		after, err := uuid.Parse(*page.JSON200.Next)
		must(err)
		parameters.After = &after
	}
	if listed != pending {
		log.Fatalf("%d are listed", listed)
	}
}

// Asked for again it has the same answer.
func cancelTwice(ctx context.Context, client *belfry.ClientWithResponses, item belfry.Notification) {
	for range 2 {
		answer, err := client.CancelNotificationWithResponse(ctx, item.Id, nil)
		must(err)
		if answer.JSON200 == nil || answer.JSON200.Cancelled != 1 {
			log.Fatalf("%s: %s", answer.Status(), answer.Body)
		}
	}
}

func readAnError(ctx context.Context, client *belfry.ClientWithResponses) {
	var body belfry.CreateNotificationsJSONRequestBody
	must(body.FromNotificationSubmission(belfry.NotificationSubmission{Channel: "none", To: "a1", Content: 1}))
	answer, err := client.CreateNotificationsWithResponse(ctx, nil, body)
	must(err)
	problem := answer.ApplicationproblemJSON422
	if problem == nil || problem.Code != "invalid_field" || (*problem.Errors)[0].Pointer != "/channel" {
		log.Fatalf("%s: %s", answer.Status(), answer.Body)
	}
}
