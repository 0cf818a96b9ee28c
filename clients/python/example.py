"""Sends by Belfry, receives and verifies a signed callback, lists page by page, and cancels. The package `belfry` is generated:

    openapi-python-client generate --path docs/reference/openapi.json --meta none --output-path belfry

Environment: BELFRY_URL, BELFRY_API_KEY; WEBHOOK_SECRET, with which the channel `hooks` signs. The channel `ios` only has to be there.
"""

import json
import os
import queue
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from belfry import AuthenticatedClient
from belfry.api.changing import cancel_notification
from belfry.api.reading import list_notifications, read_notification
from belfry.api.sending import create_notifications
from belfry.models import NotificationCreated, NotificationSubmission, Problem

PENDING = 5
received: "queue.Queue[dict]" = queue.Queue()


class Receiver(BaseHTTPRequestHandler):
    """An endpoint of the application: takes what is signed, and nothing else."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            content = Webhook(os.environ["WEBHOOK_SECRET"]).verify(body, dict(self.headers))
        except WebhookVerificationError:
            self.send_response(401)
        else:
            # A repetition has the same identifier.
            received.put({"id": self.headers["webhook-id"], "content": content})
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def must(answer, kind):
    """The answer, which is no problem."""
    if isinstance(answer, Problem):
        raise SystemExit(f"{answer.code}: {answer.detail}")
    assert isinstance(answer, kind), answer
    return answer


def receive_a_callback(client):
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    to = f"http://127.0.0.1:{server.server_port}/orders"
    submission = NotificationSubmission(channel="hooks", to=to, content={"order": 17})
    created = must(create_notifications.sync(client=client, body=submission), NotificationCreated)
    callback = received.get(timeout=30)
    assert callback == {"id": str(created.id), "content": {"order": 17}}, callback
    server.shutdown()


def page_and_cancel(client):
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    sent = set()
    for number in range(PENDING):
        submission = NotificationSubmission(
            channel="ios", to=f"{number:08x}", content={"n": number}, send_at=later, tags=["python"]
        )
        created = create_notifications.sync(client=client, body=submission, idempotency_key=f"python-{number}")
        sent.add(must(created, NotificationCreated).id)
    listed, after = [], None
    while True:
        more = {} if after is None else {"after": after}
        page = list_notifications.sync(client=client, tag="python", limit=2, **more)
        listed += [item.id for item in page.items]
        after = page.next_
        if after is None:
            break
    assert len(listed) == PENDING and set(listed) == sent, (listed, sent)
    for identifier in sent:
        for _ in range(2):
            # Asked for again it has the same answer.
            assert cancel_notification.sync(identifier, client=client).cancelled == 1
        assert read_notification.sync(identifier, client=client).state == "cancelled"


def read_an_error(client):
    submission = NotificationSubmission(channel="none", to="a1", content={})
    problem = create_notifications.sync(client=client, body=submission)
    assert isinstance(problem, Problem) and problem.code == "invalid_field", problem
    assert problem.errors[0].pointer == "/channel", problem


def main():
    client = AuthenticatedClient(base_url=os.environ["BELFRY_URL"], token=os.environ["BELFRY_API_KEY"])
    receive_a_callback(client)
    page_and_cancel(client)
    read_an_error(client)
    print(json.dumps({"client": "python", "cancelled": PENDING}))


if __name__ == "__main__":
    main()
