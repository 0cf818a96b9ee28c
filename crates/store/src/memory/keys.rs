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
            KeyChange::Rotate { name, of, sha256, former_until } => {
                let Ok(place) = place(&name) else { return KeyChanged::Unknown };
                let known = keys.remove(place);
                if known.sha256 != of {
                    return KeyChanged::Overtaken;
                }
                let key = known.rotated(sha256, former_until);
                keys.insert(place, key.clone());
                key
            }
            KeyChange::Revoke(name) => {
                let key = place(&name).ok().map(|place| keys.remove(place));
                self.api_keys = Arc::new(keys);
                return KeyChanged::Revoked { key, is_everywhere: true };
            }
        };
        self.api_keys = Arc::new(keys);
        KeyChanged::Done { key, is_everywhere: true }
    }
}
