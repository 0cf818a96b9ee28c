//! The two forms of metrics, of which a scraper asks for one (`Accept`): `OpenMetrics` 1.0, and the text format of Prometheus that was
//! before it, version 0.0.4, which `promtool check metrics` and others read.

use std::borrow::Cow;

use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, VARY};
use axum::response::{IntoResponse, Response};

/// Media type of `OpenMetrics`.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text";
/// Media type of the text format.
pub(crate) const TEXT: &str = "text/plain";

/// The answer with the metrics in `text`, `OpenMetrics` as the library writes it, to a request with `headers`. Text is for those that
/// prefer it: a scraper that asks for neither gets `OpenMetrics`.
pub(crate) fn exposed(headers: &HeaderMap, text: String) -> Response {
    let is_text = preference(headers, TEXT) > preference(headers, OPENMETRICS);
    let (content_type, body) = if is_text {
        (format!("{TEXT}; version=0.0.4; charset=utf-8"), text_format(&text))
    } else {
        (format!("{OPENMETRICS}; version=1.0.0; charset=utf-8"), text)
    };
    ([(CONTENT_TYPE, content_type), (VARY, ACCEPT.to_string())], body).into_response()
}

/// The weight of `media_type`, in thousandths (RFC 9110, section 12.5.1), where it is named itself; wildcards prefer neither form.
fn preference(headers: &HeaderMap, media_type: &str) -> u32 {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let weight = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        parts.next().filter(|name| name.eq_ignore_ascii_case(media_type))?;
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        Some(weight.map_or(1_000, thousandths))
    };
    accepted.flat_map(|value| value.split(',')).filter_map(weight).max().unwrap_or(0)
}

/// A weight such as `0.25` in thousandths; 0 where it is none.
fn thousandths(weight: &str) -> u32 {
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    format!("{whole}{fraction:0<3}").parse().map_or(0, |weight: u32| weight.min(1_000))
}

/// `openmetrics` in the text format: counters are described by the name of their samples, and there are neither units nor an end.
fn text_format(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    // The help of a metric stands before its type, which decides about its name.
    let mut help = None;
    for line in openmetrics.lines() {
        if line.starts_with("# HELP ") {
            help = Some(line);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "untyped" } else { kind };
            let help =
                help.take().and_then(|help| help.strip_prefix("# HELP ")?.strip_prefix(name));
            let help =
                help.map_or(Cow::default(), |help| format!("# HELP {name}{suffix}{help}\n").into());
            text.extend([&*help, "# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_format_is_for_those_that_prefer_it() {
        let check = |accept: &[&'static str], expect: &str| {
            let mut headers = HeaderMap::new();
            for accept in accept {
                headers.append(ACCEPT, accept.parse().unwrap());
            }
            let response = exposed(&headers, "# EOF\n".to_owned());
            let content_type = response.headers()[CONTENT_TYPE].to_str().unwrap();
            assert!(content_type.starts_with(expect), "{accept:?}: {content_type}");
            assert_eq!(response.headers()[VARY], "accept");
        };
        check(&[], OPENMETRICS);
        check(&["*/*"], OPENMETRICS);
        check(&["text/plain"], TEXT);
        check(&["text/plain;version=0.0.4;q=0.5,*/*;q=0.1"], TEXT);
        check(&["application/openmetrics-text;q=0", "Text/Plain; q=0.01"], TEXT);
        check(&["text/plain;q=0"], OPENMETRICS);
        check(&["text/plain;q=x"], OPENMETRICS);
        // As Prometheus asks.
        check(
            &[
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            ],
            OPENMETRICS,
        );
    }

    #[test]
    fn the_text_format_names_counters_as_their_samples() {
        let openmetrics = "# HELP a Things, # HELP b.\n# TYPE a counter\n# UNIT a bytes\na_total{b=\"# c\"} 1\n\
                           # HELP d_seconds D.\n# TYPE d_seconds histogram\nd_seconds_sum 1.0\n# TYPE e unknown\ne 1\n# EOF\n";
        let text = "# HELP a_total Things, # HELP b.\n# TYPE a_total counter\na_total{b=\"# c\"} 1\n\
                    # HELP d_seconds D.\n# TYPE d_seconds histogram\nd_seconds_sum 1.0\n# TYPE e untyped\ne 1\n";
        assert_eq!(text_format(openmetrics), text);
    }
}
