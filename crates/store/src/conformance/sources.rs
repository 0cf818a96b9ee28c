//! Shards of sources.

use std::collections::BTreeMap;

use notification::Timestamp;

use super::support::name;
use crate::{ShardCursor, Store};

fn cursor(position: &str, reader: u64, until: i64) -> ShardCursor {
    let until = Timestamp::from_millis(until);
    ShardCursor { position: position.to_owned(), reader, until }
}

pub(super) async fn a_shard_moves_only_from_the_state_that_it_is_in(store: &dyn Store) {
    let moved = async |from: Option<&ShardCursor>, to: Option<&ShardCursor>| {
        let (source, shard) = (name("orders"), "shard 1".to_owned());
        store.move_shard(source, shard, from.cloned(), to.cloned()).await.unwrap()
    };
    let state = async || store.reader().shards(name("orders")).await.unwrap();
    let is = |cursor: &ShardCursor| BTreeMap::from([("shard 1".to_owned(), cursor.clone())]);
    let first = cursor("", u64::MAX, 1_000);
    assert!(!moved(Some(&first), Some(&first)).await, "it is not there");
    assert!(moved(None, Some(&first)).await);
    let other = cursor("", 2, 1_000);
    assert!(!moved(None, Some(&other)).await, "somebody was first");
    assert_eq!(state().await, is(&first));
    // One whose lease is over, and that another reader took, changes nothing any more.
    let taken = cursor("", 2, 3_000);
    assert!(moved(Some(&first), Some(&taken)).await);
    for stale in [&first, &cursor("", 2, 1_000), &cursor("7", 2, 3_000), &cursor("", 3, 3_000)] {
        assert!(!moved(Some(stale), Some(&cursor("9", 1, 4_000))).await, "{stale:?}");
        assert!(!moved(Some(stale), None).await, "{stale:?}");
    }
    assert_eq!(state().await, is(&taken));
    let read = cursor("7", 2, 3_000);
    assert!(moved(Some(&taken), Some(&read)).await);
    assert_eq!(store.reader().shards(name("another")).await.unwrap(), BTreeMap::new());
    let another = store.move_shard(name("another"), "shard 1".to_owned(), None, Some(first));
    assert!(another.await.unwrap());
    assert_eq!(state().await, is(&read));
    assert!(moved(Some(&read), None).await);
    assert!(!moved(None, None).await);
    assert_eq!(state().await, BTreeMap::new());
}
