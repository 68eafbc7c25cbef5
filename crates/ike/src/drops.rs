//! Why datagrams go no further.

wire::drop_reasons! {
    /// Not a whole IKE message: too short, a wrong length, or payloads that do not tile it.
    Malformed = "malformed",
    /// Something else than IKE on the port that it shares with ESP.
    NotIke = "not_ike",
    /// IKEv1, or older.
    EarlierVersion = "earlier_version",
    /// A major version above 2.
    LaterVersion = "later_version",
    /// No IKE SA has these SPIs.
    UnknownSpi = "unknown_spi",
    /// It says that an SPI is unknown, outside of an IKE SA: a hint, which makes this end ask at most.
    Hint = "hint",
    /// Not sealed by the other end.
    NotAuthentic = "not_authentic",
    /// A request of the past, or too far ahead.
    OutsideWindow = "outside_window",
    /// A response to nothing that was asked.
    Unexpected = "unexpected",
    /// More half-open IKE SAs with one address, or one /64 of IPv6, than are kept.
    TooManyHalfOpen = "too_many_half_open",
    /// A half-open IKE SA that gave way to a newer one.
    GaveWay = "gave_way",
    /// An IKE_AUTH that does not prove an identity: a wrong key, or nobody who is configured.
    AuthenticationFailed = "authentication_failed",
    /// More IKE SAs than are kept.
    TooManyIkeSas = "too_many_ike_sas",
    /// More IKE SAs with one address, or one /64 of IPv6, than are kept.
    TooManyOfSource = "too_many_of_source",
    /// More IKE SAs of a key that any identity may have than are kept: it was told to try later.
    TooManyOfSharedKey = "too_many_of_shared_key",
    /// An IKE_SA_INIT without a cookie, while they are demanded: it was answered with one.
    NoCookie = "no_cookie",
    /// An IKE_SA_INIT that cannot be agreed to: it was answered with the reason.
    Refused = "refused",
    /// More answers to one IKE_SA_INIT than are followed up: all but one of them are forged.
    TooManyAnswers = "too_many_answers",
    /// A fragment that contradicts the others of its message, or of more than are taken.
    BadFragment = "bad_fragment",
}
