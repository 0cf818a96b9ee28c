//! Labels of a submission: checked, and shared by the recipients of a broadcast.

use std::sync::Arc;

use notification::limits::{EXTERNAL_ID_BYTES, METADATA_BYTES, TAG_BYTES};
use notification::{ByteString, CommonLabels, Labels};

use super::InvalidField;
use super::submission::Submission;

/// The labels of a submission.
pub(super) fn check_labels(submission: &Submission<'_>) -> Result<Labels, InvalidField> {
    let external_id = check_external_id(submission.external_id.clone())?;
    let tags = check_tags(&submission.tags)?;
    let metadata = submission.metadata.clone();
    if metadata.len() > METADATA_BYTES {
        let message = format!("must have at most {METADATA_BYTES} bytes, has {}", metadata.len());
        return Err(InvalidField::new("/metadata", message));
    }
    let common = CommonLabels { tags, metadata };
    let common = (common != CommonLabels::default()).then(|| Arc::new(common));
    Ok(Labels { external_id, common })
}

/// An external id; empty if there is none.
pub(super) fn check_external_id(
    external_id: Option<ByteString>,
) -> Result<ByteString, InvalidField> {
    let Some(external_id) = external_id else { return Ok(ByteString::new()) };
    check_text("/external_id".to_owned(), &external_id, EXTERNAL_ID_BYTES)?;
    Ok(external_id)
}

/// The tags, each once.
fn check_tags(given: &[ByteString]) -> Result<Vec<ByteString>, InvalidField> {
    let mut tags: Vec<ByteString> = Vec::with_capacity(given.len());
    for (index, tag) in given.iter().enumerate() {
        check_text(format!("/tags/{index}"), tag, TAG_BYTES)?;
        if !tags.contains(tag) {
            tags.push(tag.clone());
        }
    }
    Ok(tags)
}

/// The reason why no notification can have this tag; `None` if it can.
#[must_use]
pub fn fault_of_tag(tag: &str) -> Option<String> {
    fault_of(tag, TAG_BYTES)
}

fn check_text(pointer: String, text: &str, bytes_max: usize) -> Result<(), InvalidField> {
    match fault_of(text, bytes_max) {
        Some(message) => Err(InvalidField::new(pointer, message)),
        None => Ok(()),
    }
}

fn fault_of(text: &str, bytes_max: usize) -> Option<String> {
    if text.is_empty() || text.len() > bytes_max {
        return Some(format!("must have 1 to {bytes_max} bytes, has {}", text.len()));
    }
    // A list of them on a terminal, and a line of a log, must stay one.
    text.chars().any(char::is_control).then(|| "must not have control characters".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission(external_id: &str, tags: &[&str], metadata: &str) -> Submission<'static> {
        let given = |text: &str| Some(ByteString::from(text)).filter(|text| !text.is_empty());
        Submission {
            external_id: given(external_id),
            tags: tags.iter().map(|tag| ByteString::from(*tag)).collect(),
            metadata: metadata.to_owned().into(),
            ..Submission::default()
        }
    }

    #[test]
    fn labels_have_their_bounds_and_each_tag_is_kept_once() {
        assert!(check_labels(&submission("", &[], "")).unwrap().is_empty());
        let labels = check_labels(&submission("user 42", &["b", "a", "b"], "{}")).unwrap();
        assert_eq!(labels.external_id, "user 42");
        assert_eq!(labels.tags(), ["b", "a"]);
        assert_eq!(labels.metadata(), b"{}");

        let long = "x".repeat(EXTERNAL_ID_BYTES + 1);
        let refused = [
            (submission(&long, &[], ""), "/external_id"),
            (submission("a\nb", &[], ""), "/external_id"),
            (submission("", &["a", ""], ""), "/tags/1"),
            (submission("", &[&long], ""), "/tags/0"),
            (submission("", &[], &long.repeat(5)), "/metadata"),
        ];
        for (submission, pointer) in refused {
            assert_eq!(check_labels(&submission).unwrap_err().pointer, pointer);
        }
    }
}
