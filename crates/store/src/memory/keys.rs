//! API keys.

use std::sync::Arc;

use notification::limits;

use super::books::Books;
use crate::{KeyChange, KeyChanged, StoredKey};

impl Books {
    pub(super) fn change_key(&mut self, change: KeyChange) -> KeyChanged {
        let mut keys: Vec<StoredKey> = self.api_keys.to_vec();
        let place = |name| keys.binary_search_by(|key| key.name.cmp(name));
        let key = match change {
            KeyChange::Add(key) => match place(&key.name) {
                Ok(_) => return KeyChanged::Exists,
                Err(_) if keys.len() >= limits::STORED_KEYS => return KeyChanged::TooMany,
                Err(place) => {
                    keys.insert(place, key.clone());
                    key
                }
            },
            KeyChange::Rotate { name, sha256, former_until } => {
                let Ok(place) = place(&name) else { return KeyChanged::Unknown };
                let key = keys.remove(place).rotated(sha256, former_until);
                keys.insert(place, key.clone());
                key
            }
            KeyChange::Revoke(name) => {
                let Ok(place) = place(&name) else { return KeyChanged::Unknown };
                keys.remove(place)
            }
        };
        self.api_keys = Arc::new(keys);
        KeyChanged::Done { key, is_everywhere: true }
    }
}
