//! mt6d
