//! What a decoder says when an answer cannot be followed or does not want to be. Plain data.

use super::reported::Reported;

/// Why an answer ends here.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StreamFailure {
    /// The stream said something that is not in the protocol.
    Malformed(String),
    /// The stream ended before the answer did.
    Truncated,
    /// The server reported a failure.
    Reported(Reported),
    /// The answer is one of another API.
    OtherApi(Shape),
    /// The provider withheld the answer.
    Withheld(String),
}

/// An API that can be told by its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One that we speak, by its wire format's name.
    Spoken(&'static str),
    /// One that we do not, by its name for people.
    Other(&'static str),
}
