//! Promises about times: these run when nothing else does.

mod interruptions;
