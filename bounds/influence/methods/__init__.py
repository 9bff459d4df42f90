"""Methods that compute every influence, the output's change by a replaced token."""
