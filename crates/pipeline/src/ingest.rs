//! The way in: checks what callers ask for, and hands drafts to the store.
