package main

var delays = []mutant{}
