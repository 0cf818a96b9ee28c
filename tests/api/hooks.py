"""What schemathesis is told of the API beyond its description: lines, the codes of problems, and values of this engine."""

import itertools
import json
import re
from datetime import datetime, timedelta, timezone

import schemathesis
from schemathesis.core import NOT_SET
from schemathesis.specs.openapi.checks import negative_data_rejection

LINES = "application/x-ndjson"
CHANNEL = "ios"
KEYS = itertools.count()
PLAIN = re.compile(r"[^\x00-\x1f\x7f]{1,255}\Z")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")


@schemathesis.serializer(LINES)
def write_lines(ctx, value):
    """The description has lines as the array of all of them. What is no array is sent as one line."""
    lines = value if isinstance(value, list) else [value]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@schemathesis.deserializer(LINES)
def read_lines(ctx, response):
    return [json.loads(line) for line in response.content.splitlines()]


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """Gives what is a valid name of a channel the name of one that there is, what is an instant one that lies right, and what is an
    idempotency key one that was not used: else nearly all requests would end there. What is not valid stays as it is, and no request
    waits for events."""
    case.body = settled(case.body)
    if case.headers and 0 < len(str(case.headers.get("Idempotency-Key", ""))) <= 255:
        # It goes with a single thing, and not beside the field.
        if isinstance(case.body, dict) and "idempotency_key" not in case.body:
            case.headers["Idempotency-Key"] = unused_key()
        else:
            del case.headers["Idempotency-Key"]
    if case.query:
        if NAME.match(str(case.query.get("channel", ""))):
            case.query["channel"] = CHANNEL
        if str(case.query.get("wait", "")).isdigit() and 0 < int(case.query["wait"]) <= 25:
            case.query["wait"] = 0


def unused_key():
    return f"key-{next(KEYS)}"


def settled(value):
    if isinstance(value, list):
        return [settled(item) for item in value]
    if not isinstance(value, dict):
        return value
    now = datetime.now(timezone.utc)
    known = {
        "send_at": now + timedelta(hours=1),
        "expires_at": now + timedelta(hours=2),
        "registered_at": now - timedelta(hours=1),
    }
    result = {}
    for name, field in value.items():
        if name == "channel" and isinstance(field, str) and NAME.match(field):
            field = CHANNEL
        elif name in known and isinstance(field, str) and INSTANT.match(field):
            field = known[name].strftime("%Y-%m-%dT%H:%M:%SZ")
        elif name == "idempotency_key" and isinstance(field, str) and PLAIN.match(field):
            field = unused_key()
        elif name == "fallback":
            field = settled(field)
        result[name] = field
    return result


@schemathesis.check
def forbidden_line_rejection(ctx, response, case):
    """A stream of notifications is answered with 200, and each of its lines by itself: one that is forbidden is refused there. It takes
    the place of `negative_data_rejection` where there are such streams."""
    if case.operation.definition.raw["operationId"] != "create_notifications":
        return None
    if case.media_type != LINES or response.status_code != 200:
        return negative_data_rejection(ctx, response, case)
    if case.meta is None or not case.meta.generation.mode.is_negative or case.body is NOT_SET:
        return None
    last = json.loads(response.content.splitlines()[-1])
    assert "error" in last or last["refused"] > 0, "lines that are forbidden were accepted"
    return None


@schemathesis.check
def problem_code_conformance(ctx, response, case):
    """The code of a problem is one that its answer may have."""
    content_types = response.headers.get("content-type") or [""]
    if not content_types[0].startswith("application/problem+json"):
        return
    described = case.operation.definition.raw["responses"].get(str(response.status_code))
    if described is None:
        return
    code = response.json()["code"]
    codes = described["x-problem-codes"]
    assert code in codes, f"the code {code} is not among {codes}"
