//! What channels share below their protocols. The modules move here from `channel`.
