//! The codes of problems: one for each cause that a caller can act on. The pages, `docs/reference/problems.md` and the description of
//! the API are made from this table.
//!
//! A code is a promise: it is never renamed, and never means something else. A new cause gets a new one.

use std::borrow::Cow;
use std::fmt;

use axum::http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// Makes the enum, and the functions that give each column of its table.
macro_rules! problem_codes {
    ($($name:ident, $text:literal, $status:ident, $title:literal, $meaning:literal, $remedy:literal;)+) => {
        /// The cause of a problem, as a word that programs compare.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ProblemCode {
            $(#[doc = $meaning] $name,)+
        }

        impl ProblemCode {
            /// Every code, in order of status.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The word that stands in answers.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The status of an answer with this code; of a refused line of a stream, its `status`.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }

            /// A summary of one line, the same in every answer with this code.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            /// The cause, in sentences.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)+ }
            }

            /// The way on for the caller, in sentences.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)+ }
            }

            /// Reference of its page, relative to the engine's address: the `type` of a problem (RFC 9457, section 3.1.1).
            pub const fn page(self) -> &'static str {
                match self { $(Self::$name => concat!("/problems/", $text),)+ }
            }
        }
    };
}

problem_codes! {
    InvalidJson, "invalid_json", BAD_REQUEST, "Not JSON",
        "The body, or a line of it, is not JSON in UTF-8, or is empty.",
        "Correct what `detail` names by line and column, or by its first wrong byte. The same request fails again.";
    InvalidParameter, "invalid_parameter", BAD_REQUEST, "A parameter is wrong",
        "A query parameter has a value that it cannot have, is given twice, or does not go with the others.",
        "Correct the parameter that `detail` names. The same request fails again.";
    MissingParameter, "missing_parameter", BAD_REQUEST, "A parameter is missing",
        "A query parameter that the request needs is absent. Requests that change many notifications need one that bounds them.",
        "Give the parameter that `detail` names.";
    UnknownParameter, "unknown_parameter", BAD_REQUEST, "A parameter is unknown",
        "The route has no query parameter of this name. A mistyped filter that was passed over would match everything.",
        "Correct the name: `detail` lists those that the route has.";
    InvalidHeader, "invalid_header", BAD_REQUEST, "A header is wrong",
        "`Idempotency-Key` or `Last-Event-ID` has a value that it cannot have, or does not go with the body.",
        "Correct the header as `detail` says. The same request fails again.";
    BrokenBody, "broken_body", BAD_REQUEST, "The body broke off",
        "The connection ended, or broke the rules of HTTP, before the body was complete.",
        "Send the request again, with its idempotency keys.";
    InvalidGzip, "invalid_gzip", BAD_REQUEST, "Not gzip",
        "The body is sent with `Content-Encoding: gzip`, and is none (RFC 1952), is damaged, or ends too early.",
        "Compress the whole body and send all of it, or send it as it is, without `Content-Encoding`. In a stream, the lines that were answered are stored.";
    MissingKey, "missing_key", UNAUTHORIZED, "No API key",
        "The request has no API key, and this engine has keys configured.",
        "Send `Authorization: Bearer KEY`. `belfry api-key` makes one.";
    UnknownKey, "unknown_key", UNAUTHORIZED, "The API key is not known",
        "No key that is configured or stored is this one: it is mistyped, or was taken away.",
        "Use a key that is in force. Ask the operator of the engine for one.";
    ExpiredKey, "expired_key", UNAUTHORIZED, "The API key has ended",
        "The instant `not_after` of the key has passed, or it was taken away while the request came in.",
        "Ask the operator of the engine for a new key.";
    MissingScope, "missing_scope", FORBIDDEN, "The API key lacks a scope",
        "The key is good, and does not have the scope that this request needs. To name another tenant, or to change the suppression list, takes `operate`.",
        "Use a key with the scope that `detail` names; `GET /v1/keys/self` says which scopes a key has.";
    NotGranted, "not_granted", FORBIDDEN, "The API key is not granted this",
        "The key sends by some channels or with some priorities alone, and this request, or this line of it, is for others; or it would make or rotate a key that may do more than itself. Such a key requeues nothing. In a stream it also stands for a key that ended while the stream lasted.",
        "Name a channel and a priority, or grants, that the key has, or use another key; `GET /v1/keys/self` says what a key is good for.";
    Csrf, "csrf", FORBIDDEN, "The request may come from another page",
        "The request came by the session of a browser, and not as the dashboard asks: without the token of its session, or from a page of another origin.",
        "Send `x-belfry-csrf` with the `csrf` that `GET /v1/session` answers. Programs send an API key in place of a cookie.";
    NotLocal, "not_local", FORBIDDEN, "Only this machine is answered",
        "The engine has no API keys, so it answers requests to `localhost` or a loopback address alone.",
        "Call `localhost` or `127.0.0.1`, or configure a key.";
    NotFound, "not_found", NOT_FOUND, "There is no such thing",
        "There is no notification, broadcast, suppression or API key of this name, or it belongs to another tenant.",
        "Correct the identifier. What was removed by retention does not come back.";
    UnknownPath, "unknown_path", NOT_FOUND, "There is nothing at this path",
        "The API has no such path, or it is not answered here: this process only delivers (`belfry consume`), or operators have an address of their own.",
        "Correct the path: `/openapi.json` describes all of them.";
    MethodNotAllowed, "method_not_allowed", METHOD_NOT_ALLOWED, "The method is not possible here",
        "The path is there, and does not take this method.",
        "Use a method that the header `Allow` names.";
    SlowBody, "slow_body", REQUEST_TIMEOUT, "The body took too long",
        "No byte of the body came for 30 s, or an atomic request or one line of a stream took more than 60 s.",
        "Send the request again, with its idempotency keys; over a slow network send smaller ones.";
    IdempotencyKeyReused, "idempotency_key_reused", CONFLICT, "The idempotency key was used before",
        "The same idempotency key was used for a request with other content. Nothing was stored.",
        "Give a new notification a new key. For a repetition send exactly what was sent first.";
    TooLate, "too_late", CONFLICT, "Too late",
        "All that was meant is under way or has ended, so there is nothing left to cancel or to reschedule.",
        "Nothing: the account of the broadcast, or the state of the notification, says what became of it.";
    WrongState, "wrong_state", CONFLICT, "It is in another state",
        "The notification is not in the state that this request is for: not dead or in the `state` that was asked for, or not in doubt.",
        "Read the notification, and ask for the state in which it is.";
    NotReleased, "not_released", CONFLICT, "Its broadcast is not released yet",
        "The notification belongs to a part of a broadcast that has no time of its own yet.",
        "Ask again in some seconds, or when the broadcast is resumed; or reschedule the broadcast.";
    ContentRemoved, "content_removed", CONFLICT, "Its content is gone",
        "The content of the notification was removed by retention or erased, so nothing is left to send.",
        "Send a new notification.";
    Expired, "expired", CONFLICT, "It has expired",
        "The `expires_at` of the notification has passed.",
        "Send a new notification.";
    Replaced, "replaced", CONFLICT, "A fallback was sent in its place",
        "The notification was refused, and its fallback was sent.",
        "Requeue the fallback if that did not arrive, or send a new notification.";
    Overtaken, "overtaken", CONFLICT, "Another request was faster",
        "Another request has rescheduled the same notification or broadcast meanwhile.",
        "Ask again if this time is the right one.";
    KeyExists, "key_exists", CONFLICT, "The name of the key is taken",
        "There is an API key of this name already, in the configuration or in the store.",
        "Take another name. If the answer with a new key was lost, rotate the key.";
    ConfiguredKey, "configured_key", CONFLICT, "The key is in the configuration",
        "Keys of the configuration are changed there, and by no call.",
        "Change the configuration, and have the engine read it again.";
    NoConfiguredKey, "no_configured_key", CONFLICT, "No API key is configured",
        "Without a configured key every caller on the machine may do everything, and a further key would take nothing from that.",
        "Make the first key with `belfry api-key`, with the scope `operate`, and configure it.";
    TooManyKeys, "too_many_keys", CONFLICT, "Too many keys",
        "There are as many keys as a store keeps, of all tenants together.",
        "Revoke some.";
    UnreadableGrants, "unreadable_grants", CONFLICT, "The grants of the key cannot be read",
        "A newer Belfry has written the grants of the key, and this process does not understand them.",
        "Revoke the key and make another one, or ask a process of the newer version.";
    TooManyPauses, "too_many_pauses", CONFLICT, "Too many pauses",
        "There are as many pauses as an engine keeps, of all tenants together.",
        "End some with `POST /v1/resume`.";
    ConfigurationRefused, "configuration_refused", CONFLICT, "The configuration is wrong",
        "The configuration that the process has read again cannot be used. Nothing has changed: it goes on by the one before.",
        "Correct what `detail` names, a line for each mistake, and reload again. `belfry check-config` says the same beforehand.";
    UploadEnded, "upload_ended", CONFLICT, "The broadcast is no longer open",
        "The broadcast that was being handed in was given up, as when the engine restarts. Nothing of it is stored.",
        "Send the broadcast again.";
    TooLarge, "too_large", PAYLOAD_TOO_LARGE, "The body is too large",
        "The body, or a line of it, has more bytes than it may have.",
        "Send several requests, or a stream (`application/x-ndjson`).";
    UnsupportedMediaType, "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "Wrong content type",
        "The header `Content-Type` is absent, or names a type that the route does not take.",
        "Send one of the types that `detail` names.";
    UnsupportedCoding, "unsupported_coding", UNSUPPORTED_MEDIA_TYPE, "Wrong content coding",
        "The header `Content-Encoding` names a coding other than `gzip`, or several.",
        "Send the body with gzip, which the answer's `Accept-Encoding` names, or as it is.";
    InvalidField, "invalid_field", UNPROCESSABLE_ENTITY, "A field is wrong",
        "The body is JSON, and a field of it is missing, unknown, given twice, of the wrong type, or has a value that it cannot have. Nothing was stored.",
        "Correct the fields that `errors` names, each by its JSON pointer. The same request fails again.";
    RefusedValue, "refused_value", UNPROCESSABLE_ENTITY, "The database refuses a value",
        "No check found fault with the request, and the database refuses a value of it. Nothing was stored.",
        "Change the value that the words of the database in `detail` speak of, and report it: a check is missing.";
    RateExceeded, "rate_exceeded", TOO_MANY_REQUESTS, "The API key asks too often",
        "The key has made as many requests as its `requests_per_minute` allows. Nothing was done.",
        "Come back after `Retry-After` seconds; `RateLimit` says what is left. Send many notifications in one request, or ask for a higher rate.";
    TenantOverloaded, "tenant_overloaded", TOO_MANY_REQUESTS, "Too much of this tenant is under way",
        "The requests of this tenant have as much of something as one tenant may: `RateLimit` names it, as `ingest-bytes`, `rendering`, `reads`, `watches` or `requests`. Others are not affected, and nothing was done.",
        "Come back after `Retry-After` seconds, and send fewer requests at a time.";
    TenantConnections, "tenant_connections", TOO_MANY_REQUESTS, "Too many connections of this tenant",
        "This tenant has as many connections to this address as one tenant may, and this one is closed. Connections count for the tenant whose key came by them last. Nothing was done.",
        "Send the request again by a connection that is open, and close those that are idle.";
    TenantStreams, "tenant_streams", TOO_MANY_REQUESTS, "Too many streams of events of this tenant",
        "This tenant has as many streams of events open as one tenant may. Streams of others are not affected.",
        "Close a stream and come back after `Retry-After` seconds, let several readers share one, or use `wait` without a stream.";
    InternalError, "internal_error", INTERNAL_SERVER_ERROR, "The request failed",
        "The request failed in the database or by a defect of the engine, and nothing of it was stored. Other requests are not affected.",
        "Send the request again, with its idempotency keys. If it fails again, the engine's log says more.";
    Overloaded, "overloaded", SERVICE_UNAVAILABLE, "Too much is under way",
        "The requests of all tenants together hold as many bytes as the engine has for them, or as many questions wait for an answer as may. Nothing was stored.",
        "Come back after `Retry-After` seconds.";
    StoreUnavailable, "store_unavailable", SERVICE_UNAVAILABLE, "The database is away",
        "The database could not be reached for so long that the request was given up. It certainly did nothing.",
        "Come back after `Retry-After` seconds.";
    StoreFailed, "store_failed", SERVICE_UNAVAILABLE, "The store failed",
        "A write, sync or read of the store failed. The process ends by this, and takes no more work until it is started again.",
        "Send the request again, with its idempotency keys, when the engine is back, or to another process.";
    AccountUnknown, "account_unknown", SERVICE_UNAVAILABLE, "Account not known yet",
        "A version before this one counted for all tenants together. The engine counts anew, in the background, what each tenant has; until then no account of a tenant is given.",
        "Come back after `Retry-After` seconds. It takes about as long as an audit.";
    NotReady, "not_ready", SERVICE_UNAVAILABLE, "Not ready",
        "The process starts or stops, or lacks something that it needs to take work: `detail` names it.",
        "Send requests to another process, or wait until `/readyz` answers 200.";
    Starting, "starting", SERVICE_UNAVAILABLE, "Starting",
        "The process has not reached its store or its broker yet.",
        "Come back after `Retry-After` seconds.";
    TooManyStreams, "too_many_streams", SERVICE_UNAVAILABLE, "Too many streams of events",
        "As many streams of events are open as the process serves at a time.",
        "Come back after `Retry-After` seconds, or use `wait` without a stream.";
    DiskFull, "disk_full", INSUFFICIENT_STORAGE, "The disk is nearly full",
        "The store has too little room to accept anything, and nothing was stored. What was accepted before is delivered meanwhile.",
        "Free some space on the engine's disk, or come back after `Retry-After` seconds.";
}

// === impl ProblemCode ===

impl fmt::Display for ProblemCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl Serialize for ProblemCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl JsonSchema for ProblemCode {
    fn schema_name() -> Cow<'static, str> {
        "ProblemCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let codes: Vec<_> = Self::ALL.iter().map(|code| format!("`{code}`")).collect();
        let known = codes.join(", ");
        // No `enum`: a program that was made from the description goes on when a new code comes.
        json_schema!({
            "type": "string",
            "pattern": "^[a-z_]+$",
            "description": format!("The cause, for programs. Further ones may come: {known}."),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_words_of_their_own_in_order_of_status() {
        let words: BTreeSet<_> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), ProblemCode::ALL.len());
        for word in words {
            assert!(word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_')), "{word}");
        }
        assert!(ProblemCode::ALL.is_sorted_by_key(|code| code.status()));
        assert!(ProblemCode::ALL.is_sorted(), "declared in the same order");
    }
}
