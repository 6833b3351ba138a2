//! [`assert_kinds`](crate::assert_kinds): the kind of every variant of an error.

/// Asserts the kind of errors: `PATTERN => ERROR, KIND;` for each case. The patterns have to cover
/// the type, so that a new variant does not compile without a case.
#[macro_export]
macro_rules! assert_kinds {
    ($error:ty { $($pattern:pat => $value:expr, $kind:expr;)+ }) => {{
        // A value that does not have its variant would leave that variant untested.
        $(assert!(matches!($value, $pattern), "{} is no case of {}", stringify!($value), stringify!($pattern));)+
        #[allow(unreachable_patterns, reason = "a variant may have several cases")]
        let _covers_every_variant = |error: &$error| match error {
            $($pattern => {})+
        };
        $(assert_eq!(<$error>::kind(&$value), $kind, "{}", stringify!($value));)+
    }};
}
