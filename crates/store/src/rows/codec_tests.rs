//! Blobs are read back as they were written, and damage is an error.

use proptest::prelude::*;

use super::*;
use crate::rows::members::Members;
use crate::rows::removal::without_members;

proptest! {
    #[test]
    fn items_are_read_back_from_one_allocation(
        items in prop::collection::vec((".*", prop::collection::vec(any::<u8>(), 0..300), 0usize..4), 1..20),
        own in prop::sample::select(vec![ItemContent::Nothing, ItemContent::Content, ItemContent::Fallback]),
    ) {
        let items: Vec<_> = items.into_iter().map(|(recipient, payload, followers)| {
            let payload = Bytes::from(payload);
            let fallback = (own == ItemContent::Fallback && followers > 0).then(|| Arc::new(Fallback {
                of: (followers > 2).then(|| NotificationId::from_bytes([7; 16])),
                next: vec![Alternative {
                    channel: "other".parse().unwrap(),
                    destination: "there".into(),
                    recipient: recipient.as_str().into(),
                    payload: payload.clone(),
                    options: Bytes::new(),
                }; followers - 1],
            }));
            let content = Content { payload, options: Bytes::from_static(b"{}"), fallback };
            (ByteString::from(recipient), content)
        }).collect();
        let bytes = encode_items(items.iter().map(|(one, other)| (one, other)), own, 0);
        let bytes = Bytes::from(bytes);
        let mut read = Items::new(bytes.clone()).unwrap();
        let mut skipping = Items::new(bytes.clone()).unwrap();
        for (recipient, content) in &items {
            let (read_recipient, read_content) = read.read().unwrap();
            prop_assert_eq!(&read_recipient, recipient);
            prop_assert_eq!(read_content, (own != ItemContent::Nothing).then(|| content.clone()));
            prop_assert!(recipient.is_empty() || bytes.as_ptr_range().contains(&read_recipient.as_ptr()));
            skipping.skip().unwrap();
            prop_assert_eq!(skipping.pieces.position, read.pieces.position);
        }
        prop_assert!(read.read().is_err(), "nothing follows the last item");
        let mut recipients = Items::new(bytes.clone()).unwrap();
        for (recipient, content) in &items {
            let next = content.fallback.iter().flat_map(|it| it.next.iter());
            let others: Vec<ByteString> = next.map(|it| it.recipient.clone()).collect();
            prop_assert_eq!(recipients.read_recipients().unwrap(), (recipient.clone(), others));
        }
        let erased: Members = (0..20).step_by(3).collect();
        let count = u16::try_from(items.len()).unwrap();
        let kept = without_members(bytes, count, &erased).unwrap();
        let mut kept = Items::new(kept.into()).unwrap();
        for (index, (recipient, content)) in (0..).zip(&items) {
            let (kept_recipient, kept_content) = kept.read().unwrap();
            if erased.contains(index) {
                prop_assert!(kept_recipient.is_empty());
                let is_empty = |it: &Content| it.payload.is_empty() && it.options.is_empty() && it.fallback.is_none();
                prop_assert!(kept_content.as_ref().is_none_or(is_empty));
            } else {
                prop_assert_eq!(&kept_recipient, recipient);
                prop_assert_eq!(kept_content, (own != ItemContent::Nothing).then(|| content.clone()));
            }
        }
        prop_assert!(kept.read().is_err(), "as many as before");
    }

    #[test]
    fn log_rows_are_read_back(
        groups in prop::collection::vec(
            (0i64..1 << 47, any::<u16>(), ".*", prop::collection::btree_set(any::<u16>(), 1..50)),
            0..5,
        ),
    ) {
        let mut row = LogRow::new();
        let mut expect = Vec::new();
        for (at, number, detail, indexes) in groups {
            let (at, state) = (Timestamp::from_millis(at), State::Dead);
            let indexes: Vec<u16> = indexes.into_iter().collect();
            let (attempt, status) = (number, number);
            let line = LogLine { at, attempt, state, status, detail: &detail };
            row.push(&line, indexes.iter().copied());
            let attempted = Attempted { at, attempt, state, status, detail };
            expect.push(LogGroup { attempted, indexes });
        }
        prop_assert_eq!(row.is_empty(), expect.is_empty());
        prop_assert_eq!(decode_log(row.as_bytes()).unwrap(), expect);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes: Vec<u8>) {
        let _either = decode_log(&bytes);
        if let Ok(mut items) = Items::new(bytes.into()) {
            while items.read().is_ok() {}
        }
    }
}

#[test]
fn a_thousand_equal_outcomes_take_few_bytes() {
    let mut row = LogRow::new();
    let at = Timestamp::from_millis(1_800_000_000_000);
    let line = LogLine { at, attempt: 1, state: State::Delivered, status: 200, detail: "" };
    row.push(&line, 0..1000);
    assert!(row.as_bytes().len() < 20, "{}", row.as_bytes().len());
}
