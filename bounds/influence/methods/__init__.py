"""Methods that compute every influence of a request, one file each."""
