//! Checks of settings. The results of several are put together, so that everything that is wrong with a channel is named
//! at once.

use crate::ChannelError;

/// Refuses `setting` with `message` unless it is right.
pub(crate) fn require(
    is_right: bool,
    setting: &'static str,
    message: impl Into<String>,
) -> Result<(), ChannelError> {
    if is_right { Ok(()) } else { Err(ChannelError::setting(setting, message)) }
}

/// The values of both results, or all that is wrong with either.
pub(crate) fn both<A, B>(
    first: Result<A, impl Into<ChannelError>>,
    second: Result<B, impl Into<ChannelError>>,
) -> Result<(A, B), ChannelError> {
    match (first.map_err(Into::into), second.map_err(Into::into)) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (Err(first), Err(second)) => Err(first.and(second)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The values of all results, or all that is wrong with any.
pub(crate) fn each<T>(
    results: impl IntoIterator<Item = Result<T, ChannelError>>,
) -> Result<Vec<T>, ChannelError> {
    let mut all: Result<_, ChannelError> = Ok(Vec::new());
    for result in results {
        all = both(all, result).map(|(mut all, value)| {
            all.push(value);
            all
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_wrong_is_named_once_and_in_order() {
        let wrong = |setting| require(false, setting, "is wrong");
        let said = |result: Result<(), ChannelError>| {
            let errors = result.unwrap_err().each();
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let right = Ok::<_, ChannelError>;
        assert_eq!(both(right(1), both(right(2), right(3))), Ok((1, (2, 3))));
        assert_eq!(each([right(1), right(2)]), Ok(vec![1, 2]));
        assert_eq!(said(wrong("a")), ["a: is wrong"]);
        assert_eq!(said(both(Ok::<_, ChannelError>(()), wrong("a")).map(drop)), ["a: is wrong"]);
        let three = each([wrong("a"), Ok(()), wrong("b"), wrong("c")]).map(drop);
        let all = both(three, both(wrong("b"), wrong("d"))).map(drop);
        assert_eq!(
            all.clone().unwrap_err().to_string(),
            "a: is wrong; b: is wrong; c: is wrong; d: is wrong"
        );
        assert_eq!(said(all), ["a: is wrong", "b: is wrong", "c: is wrong", "d: is wrong"]);
    }
}
